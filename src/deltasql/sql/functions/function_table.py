"""The table of functions: the Spark SQL of each function for each list of types."""

from __future__ import annotations

from collections.abc import Mapping

from deltasql.sql.functions.aggregates import AGGREGATES, WINDOWS
from deltasql.sql.functions.array_functions import ARRAY_FUNCTIONS
from deltasql.sql.functions.dates.time_functions import TIME_FUNCTIONS
from deltasql.sql.functions.number_functions import NUMBER_FUNCTIONS
from deltasql.sql.functions.operator_table import Build
from deltasql.sql.functions.text_functions import TEXT_FUNCTIONS

FUNCTIONS: Mapping[str, str | Build] = {**TEXT_FUNCTIONS, **NUMBER_FUNCTIONS, **TIME_FUNCTIONS, **ARRAY_FUNCTIONS}

__all__ = ["AGGREGATES", "FUNCTIONS", "WINDOWS"]
