// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/gpurdma/gpurdma/internal/memnic"
	"github.com/gpurdma/gpurdma/internal/memory"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

// live is the setting with a network in memory that moves bytes by itself, as NICs do, and on
// which endpoints find each other without TCP.
func live(t testing.TB) setting {
	f := memnic.New(memnic.Exchanges(), memnic.TimeScale(0.01))
	t.Cleanup(func() {
		if f.Open() != 0 {
			t.Errorf("%d MRs and links were left", f.Open())
		}
	})
	return setting{
		open: func(t testing.TB, opt memory.NICOptions) *memory.NIC {
			d := f.Device("mem0", fewSGEs)
			d.OnEvent(opt.Event)
			n := memory.NewNIC(d, opt)
			closing(t, n)
			return n
		},
		kinds: []kind{hostKind, ofMemory("direct", false), ofMemory("staged", true)},
	}
}

// ofMemory returns the network's own memory.
func ofMemory(name string, staged bool) kind {
	return kind{name, staged, false, func(t testing.TB, n *memory.NIC, size int64) *memory.Buffer {
		m := must(memnic.NewMemory(size, memnic.MemoryOptions{Staged: staged}))(t)
		closing(t, m)
		b := must(n.Register(m, memory.BufferOptions{}))(t)
		closingBuffer(t, b)
		return b
	}}
}

func TestLiveOperations(t *testing.T)       { testOperations(t, live(t)) }
func TestLiveRandomOperations(t *testing.T) { testRandomOperations(t, live(t), testenv.Count(300)) }
func TestLiveMessagesOfLayouts(t *testing.T) {
	testMessagesOfLayouts(t, live(t))
}
func TestLiveRemoteRefusals(t *testing.T)    { testRemoteRefusals(t, live(t)) }
func TestLiveReceiverNotReady(t *testing.T)  { testReceiverNotReady(t, live(t)) }
func TestLiveMessageTooLong(t *testing.T)    { testMessageTooLong(t, live(t)) }
func TestLiveForgedToken(t *testing.T)       { testForgedToken(t, live(t)) }
func TestLivePeerDisappears(t *testing.T)    { testPeerDisappears(t, live(t)) }
func TestLiveFences(t *testing.T)            { testFences(t, live(t), testenv.Count(20)) }
func TestLiveQueues(t *testing.T)            { testQueues(t, live(t)) }
func TestLiveSelective(t *testing.T)         { testSelectiveCompletion(t, live(t)) }
func TestLiveSilentBatch(t *testing.T)       { testSilentBatch(t, live(t)) }
func TestLiveConnectionless(t *testing.T)    { testConnectionless(t, live(t)) }
func TestLiveCloseUnderTraffic(t *testing.T) { testCloseUnderTraffic(t, live(t)) }
func TestLiveUnshare(t *testing.T)           { testUnshare(t, live(t)) }
func TestLiveConcurrentUse(t *testing.T)     { testConcurrentUse(t, live(t), testenv.Count(100)) }
func TestLiveCancelled(t *testing.T)         { testCancelled(t, live(t)) }
func TestLiveSlices(t *testing.T)            { testSlices(t, live(t)) }
func TestLiveReferences(t *testing.T)        { testReferences(t, live(t)) }
func TestLivePinnedMemory(t *testing.T)      { testPinnedMemoryIsBounded(t, live(t)) }
func TestLiveWaitSleeps(t *testing.T)        { testWaitSleeps(t, live(t)) }
func TestLiveWaitOfMany(t *testing.T)        { testWaitOfMany(t, live(t), testenv.Count(200)) }
