"""Queues and what runs beside training: coordinators, queue runners, input pipelines, mutexes, barriers."""

from tensorbow.queues.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue

__all__ = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue"]
