//go:build tools

// Package tools pins the version of kueue that the benchmarks run.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
