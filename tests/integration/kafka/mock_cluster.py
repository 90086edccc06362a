"""The mock cluster that librdkafka brings (rdkafka_mock.h): brokers with groups, coordinators, replicas and idempotence, in this process.

It is what the client library itself is tested with, written by other people than the broker that is a process of its own, and it does what
that one cannot: several brokers, leaders that move, and the answers that a test asks for. Messages are in memory. Clients reach it by TCP
as they reach any broker; only its controls are called here, through ctypes, because the Python library does not offer them.
"""

from __future__ import annotations

import ctypes

from confluent_kafka import KafkaError, cimpl

from .cluster import Cluster

PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8
"""Kinds of requests, by the numbers of Kafka's protocol."""

_PRODUCER = 0
_POINTER, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "conf_new": (_POINTER, []),
    "conf_set": (_INT, [_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t]),
    "new": (_POINTER, [_INT, _POINTER, _TEXT, ctypes.c_size_t]),
    "destroy": (None, [_POINTER]),
    "mock_cluster_new": (_POINTER, [_POINTER, _INT]),
    "mock_cluster_destroy": (None, [_POINTER]),
    "mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "mock_group_initial_rebalance_delay_ms": (None, [_POINTER, ctypes.c_int32]),
    "mock_topic_create": (_INT, [_POINTER, _TEXT, _INT, _INT]),
    "mock_partition_set_leader": (_INT, [_POINTER, _TEXT, ctypes.c_int32, ctypes.c_int32]),
    "mock_coordinator_set": (_INT, [_POINTER, _TEXT, _TEXT, ctypes.c_int32]),
    "mock_broker_set_down": (_INT, [_POINTER, ctypes.c_int32]),
    "mock_broker_set_up": (_INT, [_POINTER, ctypes.c_int32]),
    "mock_push_request_errors_array": (None, [_POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_INT)]),
    "mock_clear_request_errors": (None, [_POINTER, ctypes.c_int16]),
}


class MockCluster(Cluster):
    """Three brokers, numbered from 1; each topic has a replica on each."""

    BROKERS = (1, 2, 3)

    def __init__(self) -> None:
        # The extension module is linked with the library, wherever that lies.
        self._library = ctypes.CDLL(cimpl.__file__)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
        text = ctypes.create_string_buffer(512)
        settings = self._call("conf_new")
        # Tests take brokers down on purpose: the library must not report that on the terminal.
        assert self._call("conf_set", settings, b"log_level", b"0", text, len(text)) == 0, text.value
        self._client = self._call("new", _PRODUCER, settings, text, len(text))
        assert self._client, text.value
        self._cluster = self._call("mock_cluster_new", self._client, len(self.BROKERS))
        # A group waits this long for further members: seconds, by default.
        self._call("mock_group_initial_rebalance_delay_ms", self._cluster, 100)
        super().__init__(self._call("mock_cluster_bootstraps", self._cluster).decode())

    def _call(self, name: str, *arguments: object) -> object:
        return getattr(self._library, f"rd_kafka_{name}")(*arguments)

    def _done(self, name: str, *arguments: object) -> None:
        code = self._call(name, self._cluster, *arguments)
        assert code == 0, KafkaError(code)

    def close(self) -> None:
        self._call("mock_cluster_destroy", self._cluster)
        self._call("destroy", self._client)

    def topic(self, name: str, partitions: int = 3) -> str:
        self._done("mock_topic_create", name.encode(), partitions, len(self.BROKERS))
        return name

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition."""
        self._done("mock_partition_set_leader", topic.encode(), partition, broker)

    def coordinate(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a group."""
        self._done("mock_coordinator_set", b"group", group.encode(), broker)

    def down(self, *brokers: int) -> None:
        for broker in brokers or self.BROKERS:
            self._done("mock_broker_set_down", broker)

    def up(self) -> None:
        for broker in self.BROKERS:
            self._done("mock_broker_set_up", broker)

    def restore(self) -> None:
        """Bring every broker up, and forget the answers that nobody asked for."""
        self.up()
        for request in (PRODUCE, FETCH, OFFSET_COMMIT):
            self.answer(request)

    def answer(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with these errors, whichever broker gets them. No errors: answer as usual again."""
        self._call("mock_clear_request_errors", self._cluster, request)
        self._call("mock_push_request_errors_array", self._cluster, request, len(errors), (_INT * len(errors))(*errors))
