//go:build tools

// Package tools pins the version of metrics-server that the testbed runs.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
