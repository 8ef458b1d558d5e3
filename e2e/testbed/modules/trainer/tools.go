//go:build tools

// Package tools pins the version of Kubeflow Trainer that the testbed runs.
package tools

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
