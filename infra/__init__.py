"""Infrastructure: project and settings, Spark session, JVM jars, broker, supervision."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The platform's own files: where it is installed, or the root of its checkout."""

COMMAND = "./twofold" if (PACKAGE / "twofold").is_file() else "twofold"
"""How one calls the platform, for texts: by the launcher of its checkout, else by its script on the path."""
