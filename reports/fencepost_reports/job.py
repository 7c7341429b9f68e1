"""The Spark job: any number of run folders in, one Parquet table for each thing known out.

The only place where a Spark session is made: local, two cores, small, quiet, no user interface.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from pyspark.sql import DataFrame, SparkSession

from fencepost import EnvironmentFailed, UsageError
from fencepost_reports import judging, reading
from fencepost_reports.judging import Promises

JAVA = 17
"""The oldest Java that Spark 4 runs on."""
JAVA_LIMIT_S = 20
PARTITIONS = 4
"""Of every shuffle: few, since each costs a task and there are two cores."""
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n
"""
