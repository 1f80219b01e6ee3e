"""The version of this package."""
from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("attache-sdk")
except PackageNotFoundError:  # run from a source tree that isn't installed
    VERSION = "0"

USER_AGENT = f"attache-sdk-python/{VERSION}"
