// SPDX-License-Identifier: Apache-2.0

package fi

// rmaRow is one operation or a few, posted one after the other. All their completions are
// taken before the next row.
type rmaRow struct {
	name  string
	ops   []rmaOp
	still bool // no byte may change
}

// rmaOp is a call of libfabric's, and the same call of this package's. Both programs read these
// words: local is "offset+length,...", remote "key:offset+length,...". The keys are a: all
// access, r: reading, w: writing, x: an invalid key. With "!" after the key the descriptor of
// the memory is wrong, so that the NIC has to refuse the operation instead of this package.
type rmaOp struct {
	call   string
	flags  Flags
	local  string
	remote string
	data   uint64
	change bool // local memory changes as soon as the call has returned
}

func one(name string, op rmaOp) rmaRow   { return rmaRow{name: name, ops: []rmaOp{op}} }
func still(name string, op rmaOp) rmaRow { return rmaRow{name: name, ops: []rmaOp{op}, still: true} }

// rmaSize is the size of either buffer.
const rmaSize = 16384

// plainRows have a completion for every operation.
var plainRows = []rmaRow{
	one("fi_read", rmaOp{"fi_read", 0, "300+500", "a:7+500", 0, false}),
	one("fi_read of many packets", rmaOp{"fi_read", 0, "1+12000", "a:4000+12000", 0, false}),
	one("fi_read, for reading", rmaOp{"fi_read", 0, "300+500", "r:7+500", 0, false}),
	one("fi_readv", rmaOp{"fi_readv", 0, "5000+10,4000+1,0+700", "a:123+711", 0, false}),
	one("fi_readmsg", rmaOp{"fi_readmsg", 0, "64+64,8+8", "a:1+72", 0, false}),
	one("fi_write", rmaOp{"fi_write", 0, "300+500", "a:7+500", 0, false}),
	one("fi_write of many packets", rmaOp{"fi_write", 0, "4384+12000", "a:1+12000", 0, false}),
	one("fi_write, the last byte", rmaOp{"fi_write", 0, "16383+1", "a:16383+1", 0, false}),
	one("fi_write, for writing", rmaOp{"fi_write", 0, "300+500", "w:7+500", 0, false}),
	one("fi_writev", rmaOp{"fi_writev", 0, "5000+10,4000+1,0+700", "a:123+711", 0, false}),
	one("fi_writemsg", rmaOp{"fi_writemsg", 0, "64+100,8+200", "a:1+300", 0, false}),
	one("fi_inject_write", rmaOp{"fi_inject_write", 0, "10+40", "a:1000+40", 0, true}),
	one("fi_writedata", rmaOp{"fi_writedata", 0, "10+400", "a:1000+400", 0xfeedf00d, false}),
	one("fi_inject_writedata", rmaOp{"fi_inject_writedata", 0, "10+64", "a:1000+64", 1, true}),
	{"three at once", []rmaOp{
		{"fi_write", 0, "0+100", "a:0+100", 0, false},
		{"fi_writedata", 0, "100+100", "a:50+100", 77, false},
		{"fi_inject_write", 0, "200+30", "a:100+30", 0, false},
	}, false},

	still("no bytes: fi_read", rmaOp{"fi_read", 0, "0+0", "a:0+0", 0, false}),
	still("no bytes: fi_write", rmaOp{"fi_write", 0, "0+0", "a:0+0", 0, false}),
	still("no bytes: fi_readmsg", rmaOp{"fi_readmsg", 0, "0+0", "a:0+0", 0, false}),
	still("no bytes: fi_writemsg", rmaOp{"fi_writemsg", 0, "0+0", "a:0+0", 0, false}),
	still("no bytes: fi_inject_write", rmaOp{"fi_inject_write", 0, "0+0", "a:0+0", 0, false}),
	still("no bytes: fi_writedata", rmaOp{"fi_writedata", 0, "0+0", "a:0+0", 9, false}),
	still("no bytes: fi_inject_writedata", rmaOp{"fi_inject_writedata", 0, "0+0", "a:0+0", 10, false}),

	one("write, FI_COMPLETION", rmaOp{"fi_writemsg", Completion, "0+100", "a:9+100", 0, false}),
	one("write, FI_INJECT", rmaOp{"fi_writemsg", Inject, "0+50", "a:9+50", 0, true}),
	one("write, FI_INJECT of two spans", rmaOp{"fi_writemsg", Inject, "0+20,90+30", "a:9+50", 0, true}),
	one("write, FI_FENCE", rmaOp{"fi_writemsg", Fence, "0+100", "a:9+100", 0, false}),
	{"write, FI_MORE", []rmaOp{
		{"fi_writemsg", More, "0+100", "a:9+100", 0, false},
		{"fi_write", 0, "500+100", "a:50+100", 0, false},
	}, false},
	one("write, FI_MORE and nothing more", rmaOp{"fi_writemsg", More, "0+100", "a:9+100", 0, false}),
	one("write, FI_REMOTE_CQ_DATA", rmaOp{"fi_writemsg", RemoteCQData, "0+100", "a:9+100", 1 << 31, false}),
	one("write, FI_INJECT|FI_REMOTE_CQ_DATA", rmaOp{"fi_writemsg", Inject | RemoteCQData, "0+8", "a:9+8", 3, true}),
	one("write, FI_INJECT_COMPLETE", rmaOp{"fi_writemsg", InjectComplete, "0+100", "a:9+100", 0, false}),
	one("write, FI_TRANSMIT_COMPLETE", rmaOp{"fi_writemsg", TransmitComplete, "0+100", "a:9+100", 0, false}),
	one("write, FI_DELIVERY_COMPLETE", rmaOp{"fi_writemsg", DeliveryComplete, "0+100", "a:9+100", 0, false}),
	one("write, FI_COMMIT_COMPLETE", rmaOp{"fi_writemsg", CommitComplete, "0+100", "a:9+100", 0, false}),
	one("read, FI_COMPLETION", rmaOp{"fi_readmsg", Completion, "0+100", "a:9+100", 0, false}),
	one("read, FI_INJECT", rmaOp{"fi_readmsg", Inject, "0+50", "a:9+50", 0, false}),
	one("read, FI_FENCE", rmaOp{"fi_readmsg", Fence, "0+100", "a:9+100", 0, false}),
	{"read, FI_MORE", []rmaOp{
		{"fi_readmsg", More, "0+100", "a:9+100", 0, false},
		{"fi_read", 0, "500+100", "a:50+100", 0, false},
	}, false},
	one("read, FI_REMOTE_CQ_DATA", rmaOp{"fi_readmsg", RemoteCQData, "0+100", "a:9+100", 5, false}),
	one("read, FI_TRANSMIT_COMPLETE", rmaOp{"fi_readmsg", TransmitComplete, "0+100", "a:9+100", 0, false}),
	one("read, FI_DELIVERY_COMPLETE", rmaOp{"fi_readmsg", DeliveryComplete, "0+100", "a:9+100", 0, false}),
	one("read, FI_COMMIT_COMPLETE", rmaOp{"fi_readmsg", CommitComplete, "0+100", "a:9+100", 0, false}),
	{"a fenced write of what was read", []rmaOp{
		{"fi_read", 0, "0+1000", "a:4096+1000", 0, false},
		{"fi_writemsg", Fence, "0+1000", "a:0+1000", 0, false},
	}, false},
	{"a fenced read of what was written", []rmaOp{
		{"fi_write", 0, "0+5000", "a:0+5000", 0, false},
		{"fi_readmsg", Fence, "8000+5000", "a:0+5000", 0, false},
	}, false},
	{"a write over a write", []rmaOp{
		{"fi_write", 0, "0+5000", "a:0+5000", 0, false},
		{"fi_write", 0, "7000+5000", "a:2500+5000", 0, false},
	}, false},

	one("several remote ranges: write", rmaOp{"fi_writemsg", 0, "0+100,300+50", "a:1000+30,a:3000+120", 0, false}),
	one("several remote ranges: read", rmaOp{"fi_readmsg", 0, "0+100,300+50", "a:1000+30,a:3000+120", 0, false}),
	one("more spans than the limit", rmaOp{"fi_writev", 0, "0+1,2+1,4+1,6+1,8+1", "a:0+5", 0, false}),
	still("inject of one byte too many", rmaOp{"fi_inject_write", 0, "0+257", "a:0+257", 0, false}),
	one("data of 33 bits", rmaOp{"fi_writedata", 0, "0+8", "a:0+8", 1<<32 + 5, false}),

	still("wrong key: fi_write", rmaOp{"fi_write", 0, "0+100", "x:0+100", 0, false}),
	still("wrong key: fi_read", rmaOp{"fi_read", 0, "0+100", "x:0+100", 0, false}),
	still("wrong key: fi_writedata", rmaOp{"fi_writedata", 0, "0+100", "x:0+100", 8, false}),
	still("wrong key: fi_inject_write", rmaOp{"fi_inject_write", 0, "0+10", "x:0+10", 0, false}),
	still("out of bounds: fi_write", rmaOp{"fi_write", 0, "0+100", "a!:16300+100", 0, false}),
	still("out of bounds: fi_read", rmaOp{"fi_read", 0, "0+100", "a!:16300+100", 0, false}),
	still("not allowed: fi_write", rmaOp{"fi_write", 0, "0+100", "r!:0+100", 0, false}),
	still("not allowed: fi_read", rmaOp{"fi_read", 0, "0+100", "w!:0+100", 0, false}),
	still("out of bounds by the descriptor: fi_write", rmaOp{"fi_write", 0, "0+100", "a:16300+100", 0, false}),
	still("out of bounds by the descriptor: fi_read", rmaOp{"fi_read", 0, "0+100", "a:16300+100", 0, false}),
	still("not allowed by the descriptor: fi_write", rmaOp{"fi_write", 0, "0+100", "r:0+100", 0, false}),
	still("not allowed by the descriptor: fi_read", rmaOp{"fi_read", 0, "0+100", "w:0+100", 0, false}),
	still("out of bounds here", rmaOp{"fi_write", 0, "16200+300", "a:0+300", 0, false}),
	{"an operation behind one that fails", []rmaOp{
		{"fi_write", 0, "0+100", "x:0+100", 0, false},
		{"fi_write", 0, "0+100", "a:0+100", 0, false},
	}, true},
}

// selectiveRows have completions only with FI_COMPLETION.
var selectiveRows = []rmaRow{
	one("fi_write", rmaOp{"fi_write", 0, "0+100", "a:9+100", 0, false}),
	one("fi_writev", rmaOp{"fi_writev", 0, "0+100,200+1", "a:9+101", 0, false}),
	one("fi_read", rmaOp{"fi_read", 0, "0+100", "a:9+100", 0, false}),
	one("fi_readv", rmaOp{"fi_readv", 0, "0+100,200+1", "a:9+101", 0, false}),
	one("fi_writedata", rmaOp{"fi_writedata", 0, "0+100", "a:9+100", 6, false}),
	one("fi_inject_write", rmaOp{"fi_inject_write", 0, "0+10", "a:9+10", 0, true}),
	one("write, none", rmaOp{"fi_writemsg", 0, "0+100", "a:9+100", 0, false}),
	one("write, FI_COMPLETION", rmaOp{"fi_writemsg", Completion, "0+100", "a:9+100", 0, false}),
	one("write, FI_COMPLETION|FI_INJECT", rmaOp{"fi_writemsg", Completion | Inject, "0+10", "a:9+10", 0, true}),
	one("write, FI_COMPLETION|FI_REMOTE_CQ_DATA", rmaOp{"fi_writemsg", Completion | RemoteCQData, "0+10", "a:9+10", 4, false}),
	one("write, FI_TRANSMIT_COMPLETE", rmaOp{"fi_writemsg", TransmitComplete, "0+100", "a:9+100", 0, false}),
	one("write, FI_DELIVERY_COMPLETE", rmaOp{"fi_writemsg", DeliveryComplete, "0+100", "a:9+100", 0, false}),
	one("write, FI_COMPLETION|FI_DELIVERY_COMPLETE", rmaOp{"fi_writemsg", Completion | DeliveryComplete, "0+100", "a:9+100", 0, false}),
	one("read, none", rmaOp{"fi_readmsg", 0, "0+100", "a:9+100", 0, false}),
	one("read, FI_COMPLETION", rmaOp{"fi_readmsg", Completion, "0+100", "a:9+100", 0, false}),
	one("read, FI_TRANSMIT_COMPLETE", rmaOp{"fi_readmsg", TransmitComplete, "0+100", "a:9+100", 0, false}),
	one("read, FI_DELIVERY_COMPLETE", rmaOp{"fi_readmsg", DeliveryComplete, "0+100", "a:9+100", 0, false}),
	{"the second of three", []rmaOp{
		{"fi_write", 0, "0+100", "a:0+100", 0, false},
		{"fi_writemsg", Completion, "100+100", "a:50+100", 0, false},
		{"fi_write", 0, "200+30", "a:100+30", 0, false},
	}, false},
	still("wrong key: fi_write", rmaOp{"fi_write", 0, "0+100", "x:0+100", 0, false}),
	still("wrong key: fi_read", rmaOp{"fi_read", 0, "0+100", "x:0+100", 0, false}),
}

// connectionlessRows go to a peer of an address table, by reliable datagrams.
var connectionlessRows = []rmaRow{
	one("fi_read", rmaOp{"fi_read", 0, "300+500", "a:7+500", 0, false}),
	one("fi_readv", rmaOp{"fi_readv", 0, "5000+10,4000+1,0+700", "a:123+711", 0, false}),
	one("fi_readmsg", rmaOp{"fi_readmsg", 0, "64+64,8+8", "a:1+72", 0, false}),
	one("fi_write", rmaOp{"fi_write", 0, "300+500", "a:7+500", 0, false}),
	one("fi_write of many packets", rmaOp{"fi_write", 0, "4384+12000", "a:1+12000", 0, false}),
	one("fi_writev", rmaOp{"fi_writev", 0, "5000+10,4000+1,0+700", "a:123+711", 0, false}),
	one("fi_writemsg", rmaOp{"fi_writemsg", 0, "64+100,8+200", "a:1+300", 0, false}),
	one("fi_inject_write", rmaOp{"fi_inject_write", 0, "10+40", "a:1000+40", 0, true}),
	one("fi_writedata", rmaOp{"fi_writedata", 0, "10+400", "a:1000+400", 0xfeedf00d, false}),
	one("fi_inject_writedata", rmaOp{"fi_inject_writedata", 0, "10+64", "a:1000+64", 1, true}),
	one("write, FI_INJECT", rmaOp{"fi_writemsg", Inject, "0+50", "a:9+50", 0, true}),
	one("write, FI_FENCE", rmaOp{"fi_writemsg", Fence, "0+100", "a:9+100", 0, false}),
	one("write, FI_REMOTE_CQ_DATA", rmaOp{"fi_writemsg", RemoteCQData, "0+100", "a:9+100", 1 << 31, false}),
	one("write, FI_TRANSMIT_COMPLETE", rmaOp{"fi_writemsg", TransmitComplete, "0+100", "a:9+100", 0, false}),
	still("no bytes: fi_write", rmaOp{"fi_write", 0, "0+0", "a:0+0", 0, false}),
}
