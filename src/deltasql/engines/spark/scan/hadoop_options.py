"""Translate storage options to options of Hadoop's file systems, for native reads of Spark."""

from __future__ import annotations

from collections.abc import Mapping

from deltasql.engines.spark.scan.hadoop_paths import hadoop_root
from deltasql.storage import is_local, store_options

_S3 = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "token": "session.token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "region": "endpoint.region",
    "default_region": "endpoint.region",
}
# These options concern writes only.
_WRITE_OPTIONS = {"checksum", "checksum_algorithm", "conditional_put", "copy_if_not_exists", "disable_tagging"}
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"


def hadoop_options(location: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a read, which leave the session's settings alone; None if an option has no equivalent."""
    if is_local(location):
        return {}
    given = store_options(options)
    if not given:
        return {}
    root = hadoop_root(location)
    if not root.startswith("s3a://"):
        return None
    bucket = root.removeprefix("s3a://").partition("/")[0]
    hosted = given.pop("virtual_hosted_style_request", "false").lower() in ("true", "1")
    anonymous = given.pop("skip_signature", "false").lower() in ("true", "1")
    translated = {"path.style.access": str(not hosted).lower()}
    if anonymous:
        translated["aws.credentials.provider"] = _ANONYMOUS
    for key, value in given.items():
        if key in _WRITE_OPTIONS:
            continue
        if key not in _S3:
            return None
        translated[_S3[key]] = value
    return {f"fs.s3a.bucket.{bucket}.{key}": value for key, value in translated.items()}
