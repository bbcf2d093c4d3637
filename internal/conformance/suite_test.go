// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"testing"

	"github.com/gpurdma/gpurdma/fabrictest"
	"github.com/gpurdma/gpurdma/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// suite is what every fabric must do.
var suite = []struct {
	name string
	run  func(t *testing.T, s *setting)
}{
	{"Hello", testHello},
	{"Ranges", testRanges},
	{"Views", testViews},
	{"SeveralSpans", testSeveralSpans},
	{"Inline", testInline},
	{"Nothing", testNothing},
	{"Notify", testNotify},
	{"WriteThenSend", testWriteThenSend},
	{"LastWriteWins", testLastWriteWins},
	{"Delivered", testDelivered},
	{"Fence", testFence},
	{"FetchAdd", testFetchAdd},
	{"CompareSwap", testCompareSwap},
	{"AtomicResult", testAtomicResult},
	{"Messages", testMessages},
	{"MessageSizes", testMessageSizes},
	{"SlowReceiver", testSlowReceiver},
	{"SlowNotified", testSlowNotified},
	{"Notifications", testNotifications},
	{"Overlaps", testOverlaps},
	{"Batch", testBatch},
	{"BatchError", testBatchError},
	{"Start", testStart},
	{"Cancel", testCancel},
	{"CancelMany", testCancelMany},
	{"ContextEnds", testContextEnds},
	{"SendExpires", testSendExpires},
	{"Queue", testQueue},
	{"QueueErrors", testQueueErrors},
	{"Ready", testReady},
	{"ReadyError", testReadyError},
	{"ReadyClose", testReadyClose},
	{"Verify", testVerify},
	{"VerifyReady", testVerifyReady},
	{"VerifyShared", testVerifyShared},
	{"VerifyFinds", testVerifyFinds},
	{"VerifyRoom", testVerifyRoom},
	{"Import", testImport},
	{"Descriptor", testDescriptor},
	{"RefusedKey", testRefusedKey},
	{"StaleKey", testStaleKey},
	{"AccessRefused", testAccessRefused},
	{"OutOfRange", testOutOfRange},
	{"WrongOperations", testWrongOperations},
	{"Close", testClose},
	{"CloseUnderTraffic", testCloseUnderTraffic},
	{"LastWords", testLastWords},
	{"FailureTold", testFailureTold},
	{"Admit", testAdmit},
	{"Backlog", testBacklog},
	{"MaxConns", testMaxConns},
	{"PeerInfo", testPeerInfo},
	{"TLS", testTLS},
	{"Listener", testListener},
	{"Dial", testDial},
	{"Outlive", testOutlive},
	{"Goroutines", testGoroutines},
	{"ManyConnections", testManyConnections},
	{"BufferReferences", testBufferReferences},
	{"BufferFree", testBufferFree},
	{"Slices", testSlices},
	{"DirectOnly", testDirectOnly},
	{"OtherFabric", testOtherFabric},
	{"FabricClose", testFabricClose},
	{"Stats", testStats},
	{"StatsOfMany", testStatsOfMany},
	{"StatsOfEnded", testStatsOfEnded},
}

func run(t *testing.T, s func(t testing.TB) *setting) {
	for _, x := range suite {
		t.Run(x.name, func(t *testing.T) { x.run(t, s(t)) })
	}
}

// endsWithItsLink are the tests of connections that end with their link. Those over several rails
// outlive it.
var endsWithItsLink = []string{"RefusedKey", "AccessRefused", "FailureTold", "LastWords", "Outlive"}

// runOverRails runs the suite over three NICs on each side.
func runOverRails(t *testing.T, opt fabrictest.Options) {
	for _, x := range suite {
		if slices.Contains(endsWithItsLink, x.name) {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			s := inMemory(t, opt)
			s.nics = []string{"mem0", "mem1", "mem2"}
			x.run(t, s)
		})
	}
}

// TestConformanceRails runs the suite over several rails.
func TestConformanceRails(t *testing.T) { runOverRails(t, fabrictest.Options{}) }

// TestConformanceRailsLate runs the suite over several rails of NICs that hold the bytes of writes back.
func TestConformanceRailsLate(t *testing.T) { runOverRails(t, fabrictest.Options{HoldWrites: true}) }

func TestConformance(t *testing.T) {
	run(t, func(t testing.TB) *setting { return inMemory(t, fabrictest.Options{}) })
}

// TestConformanceLate runs the suite over NICs that hold the bytes of writes back.
func TestConformanceLate(t *testing.T) {
	run(t, func(t testing.TB) *setting { return inMemory(t, fabrictest.Options{HoldWrites: true}) })
}
