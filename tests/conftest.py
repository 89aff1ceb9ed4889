import os

from hypothesis import HealthCheck, settings

# No deadlines: a busy machine is not a bug. In continuous integration the same examples every time.
settings.register_profile("local", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config):
    # torch's own forward mode scripts its decompositions and so warns about itself.
    config.addinivalue_line("filterwarnings", "ignore:.*torch.jit.script:DeprecationWarning")
