"""Real ranks for the tests: four processes over gloo, started once, that run functions and send back what they return.

    from tests.torch.ranks import ranks
    ranks.run(3, function, *arguments)     function(group, *arguments) on the first three ranks

A rank that does not answer in time fails the test and takes the others with it; the next test starts new ones.
"""

import atexit
import multiprocessing
import tempfile
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

SIZE = 4


def serve(rank, folder, pipe):
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), SIZE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=120))
    groups = {size: dist.new_group(range(size)) for size in range(1, SIZE)}
    groups[SIZE] = dist.group.WORLD
    pipe.send(None)
    while (job := pipe.recv()) is not None:
        size, function, arguments = job
        try:
            pipe.send((function(groups[size], *arguments), None))
        except Exception:
            pipe.send((None, traceback.format_exc()))
    dist.destroy_process_group()


class Ranks:
    def __init__(self):
        self.processes, self.pipes, self.folder = [], [], None

    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        for rank in range(SIZE):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(rank, self.folder.name, there), daemon=True)
            process.start()
            self.processes.append(process)
            self.pipes.append(here)
        for rank in range(SIZE):
            self.answer(rank, 300)

    def answer(self, rank, timeout):
        if not self.pipes[rank].poll(timeout):
            self.stop()
            raise TimeoutError(f"rank {rank} did not answer within {timeout} s")
        return self.pipes[rank].recv()

    def run(self, size, function, *arguments, timeout=90):
        if not self.processes:
            self.start()
        for rank in range(size):
            self.pipes[rank].send((size, function, arguments))
        answers = [self.answer(rank, timeout) for rank in range(size)]
        for rank, (_, error) in enumerate(answers):
            assert error is None, f"rank {rank}: {error}"
        return [result for result, _ in answers]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
        if self.folder is not None:
            self.folder.cleanup()
        self.processes, self.pipes, self.folder = [], [], None


ranks = Ranks()
atexit.register(ranks.stop)
