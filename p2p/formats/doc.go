// SPDX-License-Identifier: Apache-2.0

// Package formats writes a run for other programs: nagios, node-problem-detector,
// node-feature-discovery and dynamic resource allocation. To add a program, write its format into
// a file and add it to [All].
package formats
