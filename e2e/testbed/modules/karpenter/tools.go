//go:build tools

// Package tools pins the version of Karpenter that the testbed runs.
package tools

import _ "sigs.k8s.io/karpenter/kwok"
