// Command coredns is CoreDNS with the few plugins that the testbed's cluster needs:
// the full binary links the SDKs of three clouds and takes four times as long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// The order of this list is the order in which a query passes through the plugins.
	dnsserver.Directives = []string{"bind", "errors", "hosts", "kubernetes"}
	coremain.Run()
}
