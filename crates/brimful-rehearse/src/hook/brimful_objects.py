"""Python objects between ranks go through the store of the default group: collectives move no values here."""

import pickle
import time

NAMES = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)


def install(torch):
    """Put the functions below in the place of PyTorch's."""
    import torch.distributed.distributed_c10d as c10d

    objects = Objects(c10d)
    for name in NAMES:
        if hasattr(c10d, name):
            setattr(c10d, name, getattr(objects, name))
            setattr(torch.distributed, name, getattr(objects, name))


class Objects:
    """The functions of `torch.distributed`, with the same arguments."""

    def __init__(self, c10d):
        self.c10d = c10d
        # Ranks of a group -> exchanges so far: a rank counts only those that it is part of.
        self.exchanges = {}
        self.sent = {}  # (ranks, from, to) -> messages so far
        self.received = {}

    def ranks(self, group):
        return self.c10d.get_process_group_ranks(group or self.c10d._get_default_group())

    def exchange(self, value, group):
        """Every rank's value."""
        store = self.c10d._get_default_store()
        ranks = self.ranks(group)
        number = self.exchanges[tuple(ranks)] = self.exchanges.get(tuple(ranks), 0) + 1
        key = f"brimful/{number}/{'-'.join(map(str, ranks))}"
        store.set(f"{key}/{self.c10d.get_rank()}", pickle.dumps(value))
        return ranks, [pickle.loads(store.get(f"{key}/{rank}")) for rank in ranks]

    def all_gather_object(self, object_list, obj, group=None):
        object_list[:] = self.exchange(obj, group)[1]

    def gather_object(self, obj, object_gather_list=None, dst=None, group=None, group_dst=None):
        values = self.exchange(obj, group)[1]
        if object_gather_list is not None:
            object_gather_list[:] = values

    def broadcast_object_list(self, object_list, src=None, group=None, device=None, group_src=None):
        ranks, values = self.exchange(list(object_list), group)
        source = ranks[group_src] if group_src is not None else (src or 0)
        object_list[:] = values[ranks.index(source)]

    def scatter_object_list(
        self, scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
    ):
        ranks, values = self.exchange(scatter_object_input_list, group)
        source = ranks[group_src] if group_src is not None else (src or 0)
        values = values[ranks.index(source)]
        scatter_object_output_list[0] = values[ranks.index(self.c10d.get_rank())]

    def send_object_list(
        self, object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False
    ):
        target = dst if group_dst is None else self.ranks(group)[group_dst]
        message = (tuple(self.ranks(group)), self.c10d.get_rank(), target)
        key = self.key(message, self.sent)
        self.sent[message] = self.sent.get(message, 0) + 1
        self.c10d._get_default_store().set(key, pickle.dumps(list(object_list)))

    def recv_object_list(
        self, object_list, src=None, group=None, device=None, group_src=None, use_batch=False
    ):
        source = src if group_src is None else self.ranks(group)[group_src]
        if source is None:
            source = self.wait_for_any(group)
        message = (tuple(self.ranks(group)), source, self.c10d.get_rank())
        key = self.key(message, self.received)
        self.received[message] = self.received.get(message, 0) + 1
        object_list[:] = pickle.loads(self.c10d._get_default_store().get(key))
        return source

    def key(self, message, counts):
        ranks, source, target = message
        return f"brimful/message/{'-'.join(map(str, ranks))}/{source}-{target}/{counts.get(message, 0)}"

    def wait_for_any(self, group):
        """Return the rank whose message is there first."""
        store, own = self.c10d._get_default_store(), self.c10d.get_rank()
        ranks = tuple(self.ranks(group))
        while True:
            for rank in ranks:
                if rank != own and store.check([self.key((ranks, rank, own), self.received)]):
                    return rank
            time.sleep(0.01)
