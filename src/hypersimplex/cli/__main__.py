from hypersimplex.cli import app

app()
