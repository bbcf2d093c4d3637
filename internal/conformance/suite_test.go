// SPDX-License-Identifier: Apache-2.0

package conformance

import (
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

func TestConformance(t *testing.T) {
	run(t, func(t testing.TB) *setting { return inMemory(t, fabrictest.Options{}) })
}

// TestConformanceLate runs the suite over NICs that hold the bytes of writes back.
func TestConformanceLate(t *testing.T) {
	run(t, func(t testing.TB) *setting { return inMemory(t, fabrictest.Options{HoldWrites: true}) })
}
