"""Texts and numbers of each page: functions of what is known, without HTML."""
