//go:build tools

// Package tools pins the version of JobSet that the testbed runs.
package tools

import _ "sigs.k8s.io/jobset"
