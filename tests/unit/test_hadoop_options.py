"""Storage options are translated to settings of Hadoop's file systems, or Arrow is used."""

from __future__ import annotations

import pytest

from deltasql.engines.spark.scan.hadoop_options import hadoop_options

LOCATION = "s3://lake/t"


def test_key_endpoint_and_region_are_set_per_bucket() -> None:
    options = {
        "AWS_ACCESS_KEY_ID": "k",
        "secret_access_key": "s",
        "aws_session_token": "t",
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_region": "eu-west-1",
        "allow_http": "true",
        "timeout": "5s",
        "aws_conditional_put": "etag",
    }
    assert hadoop_options(LOCATION, options) == {
        "fs.s3a.bucket.lake.access.key": "k",
        "fs.s3a.bucket.lake.secret.key": "s",
        "fs.s3a.bucket.lake.session.token": "t",
        "fs.s3a.bucket.lake.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.lake.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.lake.path.style.access": "true",
    }


def test_hosts_named_by_bucket_and_no_signature() -> None:
    found = hadoop_options(LOCATION, {"aws_virtual_hosted_style_request": "true", "aws_skip_signature": "true"})
    assert found is not None
    assert found["fs.s3a.bucket.lake.path.style.access"] == "false"
    assert found["fs.s3a.bucket.lake.aws.credentials.provider"].endswith("AnonymousAWSCredentialsProvider")


@pytest.mark.parametrize("location", [LOCATION, "az://lake/t", "/tmp/t"])
def test_no_options_set_nothing(location: str) -> None:
    assert hadoop_options(location, {}) == {}
    assert hadoop_options(location, {"timeout": "5s"}) == {}


@pytest.mark.parametrize(
    ("location", "options"),
    [
        (LOCATION, {"aws_access_key_id": "k", "aws_sse_customer_key_base64": "x"}),
        (LOCATION, {"aws_role_arn": "arn:…"}),
        ("az://lake/t", {"azure_storage_account_key": "x"}),
        ("gs://lake/t", {"google_service_account": "x"}),
    ],
)
def test_options_without_a_hadoop_name_use_arrow(location: str, options: dict[str, str]) -> None:
    assert hadoop_options(location, options) is None
