"""Infrastructure: project and settings, Spark session, JVM jars, broker, supervision."""

from pathlib import Path

import twofold_algebra
import twofold_archive

PACKAGE = Path(__file__).resolve().parents[1]
"""The platform's own files: where it is installed, or the root of its checkout."""
PACKAGES = Path(twofold_algebra.__path__[0]), Path(twofold_archive.__path__[0])
"""The packages that it stands on, wherever they are installed."""
IS_CHECKOUT = (PACKAGE / "twofold").is_file()
"""Whether it runs from its checkout, which has a launcher."""
COMMAND = "./twofold" if IS_CHECKOUT else "twofold"
"""How one calls the platform, for texts: by the launcher of its checkout, else by its script on the path."""
DOCS = "docs" if IS_CHECKOUT else str(PACKAGE / "docs")
"""Where its pages are, for texts."""
