"""Storage options in the words of Hadoop's file systems, for reads that Spark makes natively."""

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
# How objects are written makes no difference to those who read them.
_OF_WRITES = {"checksum", "checksum_algorithm", "conditional_put", "copy_if_not_exists", "disable_tagging"}
_NO_CREDENTIALS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"


def hadoop_options(location: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """What a read is told, so that the session's own settings stay as they are; None if that cannot be said."""
    if is_local(location):
        return {}
    asked = store_options(options)
    if not asked:
        return {}
    root = hadoop_root(location)
    if not root.startswith("s3a://"):
        return None
    bucket = root.removeprefix("s3a://").partition("/")[0]
    hosted = asked.pop("virtual_hosted_style_request", "false").lower() in ("true", "1")
    anonymous = asked.pop("skip_signature", "false").lower() in ("true", "1")
    told = {"path.style.access": str(not hosted).lower()}
    if anonymous:
        told["aws.credentials.provider"] = _NO_CREDENTIALS
    for key, value in asked.items():
        if key in _OF_WRITES:
            continue
        if key not in _S3:
            return None
        told[_S3[key]] = value
    return {f"fs.s3a.bucket.{bucket}.{key}": value for key, value in told.items()}
