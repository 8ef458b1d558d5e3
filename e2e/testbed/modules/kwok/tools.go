//go:build tools

// Package tools pins the version of kwok that the testbed runs.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
