import pytest


@pytest.fixture(autouse=True)
def one_thread():
    torch = pytest.importorskip("torch")  # small networks only lose time to threads
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
