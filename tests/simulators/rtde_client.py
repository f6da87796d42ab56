"""A second RTDE client, written from UR's "Real-Time Data Exchange (RTDE) Guide" alone.

It shares nothing with the stand-in: its own type table, its own framing, and every reply checked to the byte.
"""

import socket
import struct

SIZES = {
    "BOOL": 1, "UINT8": 1, "UINT32": 4, "UINT64": 8, "INT32": 4, "DOUBLE": 8,
    "VECTOR3D": 24, "VECTOR6D": 48, "VECTOR6INT32": 24, "VECTOR6UINT32": 24,
}  # fmt: skip


class RtdeClient:
    """One connection to port 30004."""

    def __init__(self, host):
        self.socket = socket.create_connection((host, 30004), 3.0)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, kind, payload=b""):
        self.socket.sendall(struct.pack(">H", 3 + len(payload)) + kind.encode() + payload)

    def package(self):
        """Give type and payload of the next package."""
        while len(self.buffer) < 3 or len(self.buffer) < struct.unpack(">H", self.buffer[:2])[0]:
            data = self.socket.recv(4096)
            if not data:
                raise ConnectionError("the controller closed the connection")
            self.buffer += data
        size = struct.unpack(">H", self.buffer[:2])[0]
        package, self.buffer = self.buffer[:size], self.buffer[size:]
        return chr(package[2]), package[3:]

    def request(self, kind, payload=b""):
        """Send a request, and give the payload of its answer, passing by data packages."""
        self.send(kind, payload)
        while True:
            found, answer = self.package()
            if found == kind:
                return answer
            assert found == "U", f"an unexpected package of type {found!r}"

    def outputs(self, names, frequency=125.0):
        """Ask for output variables; give the recipe's id and the types."""
        answer = self.request("O", struct.pack(">d", frequency) + ",".join(names).encode())
        return answer[0], answer[1:].decode().split(",")

    def inputs(self, names):
        """Ask for input variables; give the recipe's id and the types."""
        answer = self.request("I", ",".join(names).encode())
        return answer[0], answer[1:].decode().split(",")

    def data(self):
        """Give the payload of the next data package."""
        kind, payload = self.package()
        assert kind == "U"
        return payload
