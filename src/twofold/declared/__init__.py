"""The declarations of the project, so that each process, also of Spark's workers, can import what they define."""

from twofold.infra.project.project import project

__path__ = [str(project().tables)]
