//go:build tools

// Package tools pins the version of the training-operator that the testbed runs.
package tools

import _ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
