// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"maps"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// forms are those in which metrics are served: Prometheus' text, and OpenMetrics.
var forms = []expfmt.Format{expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtText}

// Page has metrics in each form that a client has asked for. All clients share the bytes, so that one that does not
// read costs no more than its connection. They are not compressed: a compressor takes 800 KiB.
type Page struct {
	metrics prometheus.Gatherer
	handler http.Handler
	mu      sync.Mutex
	made    map[expfmt.Format]*response
}

// response is an http.ResponseWriter that keeps what is written.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *response) Header() http.Header         { return r.header }
func (r *response) WriteHeader(status int)      { r.status = status }
func (r *response) Write(p []byte) (int, error) { return r.body.Write(p) }

// NewPage returns a page of metrics, which it gathers once for each form.
func NewPage(metrics prometheus.Gatherer) *Page {
	options := promhttp.HandlerOpts{AcceptedFormats: forms, DisableCompression: true}
	return &Page{metrics: metrics, handler: promhttp.HandlerFor(metrics, options), made: map[expfmt.Format]*response{}}
}

// Gather gathers the metrics.
func (p *Page) Gather() ([]*dto.MetricFamily, error) { return p.metrics.Gather() }

// in returns the metrics in the form that a request's header asks for. Of the request nothing else counts.
func (p *Page) in(header http.Header) *response {
	accept := http.Header{"Accept": header["Accept"]}
	form := expfmt.NegotiateAccept(accept, forms...)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.made[form]
	if r == nil {
		r = &response{header: http.Header{}, status: http.StatusOK}
		p.handler.ServeHTTP(r, &http.Request{Method: http.MethodGet, Header: accept})
		p.made[form] = r
	}
	return r
}

// ServeHTTP answers a request.
func (p *Page) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r := p.in(request.Header)
	maps.Copy(w.Header(), r.header)
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes())
}
