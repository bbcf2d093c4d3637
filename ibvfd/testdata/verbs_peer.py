#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A verbs peer in Python, by pyverbs, that carries out a test's orders.

usage: verbs_peer.py DEVICE GID-INDEX

It has a queue pair and a buffer. It prints where they are on standard output, and
then reads orders from standard input, each a line of JSON, and answers with a line.
"""
import json
import socket
import sys
import time

from pyverbs import enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

SIZE = 65536
PSN = 0xABCDEF
PATIENCE = 60  # seconds, far more than anything takes

ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ |
          e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC)

OPS = {
    "write": e.IBV_WR_RDMA_WRITE,
    "write-imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "send": e.IBV_WR_SEND,
    "send-imm": e.IBV_WR_SEND_WITH_IMM,
    "fetch-add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    "compare-swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
}


class Peer:
    def __init__(self, device, index):
        self.index = index
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, SIZE, ACCESS)
        cap = QPCap(max_send_wr=16, max_recv_wr=16)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def hello(self):
        gid = self.context.query_gid(port_num=1, index=self.index)
        return {"qpn": self.qp.qp_num, "psn": PSN, "gid": str(gid),
                "addr": self.mr.buf, "rkey": self.mr.rkey}

    def connect(self, o):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.path_mtu = e.IBV_MTU_1024
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = o["qpn"], o["psn"], PSN
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry = 12, 7
        attr.timeout, attr.retry_cnt = 20, 3
        route = GlobalRoute(dgid=GID(o["gid"]), sgid_index=self.index, hop_limit=64)
        attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=route)
        self.qp.to_rts(attr)
        return {}

    def sge(self, o):
        return SGE(self.mr.buf + o["off"], o["length"], self.mr.lkey)

    def receive(self, o):
        self.qp.post_recv(RecvWR(wr_id=2, num_sge=1, sg=[self.sge(o)]))
        return {}

    def post(self, o):
        """Posts a work request and waits for its completion."""
        imm = socket.htonl(o.get("imm", 0))
        wr = SendWR(wr_id=1, opcode=OPS[o["op"]], num_sge=1, sg=[self.sge(o)], imm_data=imm)
        if o["op"] in ("fetch-add", "compare-swap"):
            wr.set_wr_atomic(o["rkey"], o["addr"], o["compare_add"], o.get("swap", 0))
        elif "rkey" in o:
            wr.set_wr_rdma(o["rkey"], o["addr"])
        self.qp.post_send(wr)
        return self.wait(o)

    def wait(self, _):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            n, list_ = self.cq.poll(1)
            if n:
                c = list_[0]
                return {"id": c.wr_id, "status": c.status, "opcode": c.opcode, "length": c.byte_len,
                        "imm": socket.ntohl(c.imm_data) if c.wc_flags & e.IBV_WC_WITH_IMM else None}
            time.sleep(0.001)
        raise TimeoutError("no completion")

    def put(self, o):
        data = bytes.fromhex(o["bytes"])
        self.mr.write(data, len(data), o["off"])
        return {}

    def get(self, o):
        return {"bytes": self.mr.read(o["length"], o["off"]).hex()}


def main():
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    print(json.dumps(peer.hello()), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(peer, order["do"])(order)), flush=True)


main()
