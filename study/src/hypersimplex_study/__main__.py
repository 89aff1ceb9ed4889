"""`python -m hypersimplex_study` is the `hypersimplex` command."""

from hypersimplex_study.cli import app

app()
