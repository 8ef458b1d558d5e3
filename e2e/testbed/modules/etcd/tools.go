//go:build tools

// Package tools pins the version of etcd that the testbed runs.
package tools

import _ "go.etcd.io/etcd/server/v3"
