package replica

import (
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/acceld/acceld/controller/leader"
)

// service is the name of the controller's Service.
const service = "acceld-controller"

// wants says what this replica still needs to be ready; empty if it is ready. The leader needs its caches. Another
// replica can be elected at any time, which takes the API server and certificates.
func (o *Replica) wants() string {
	p := o.policies.Load()
	switch {
	case o.keeper != nil && !o.keeper.Has():
		return "there is no certificate yet"
	case !o.election.Seen():
		return "the lease has not been read yet"
	case !o.election.Leads():
		return ""
	case o.extender != nil && !o.extender.Ready():
		return "the cache of cards is not complete yet"
	case !o.config.Policies:
		return ""
	case p == nil:
		return "policies are not carried out"
	}
	select {
	case <-p.Ready():
		return ""
	default:
		if o.extender != nil { // the scheduler must not wait for policies
			return ""
		}
		return "the cluster has not been read yet"
	}
}

// service returns the keeper that points the Service to this replica. It returns nil outside a pod, where POD_IP is
// not set.
func (o *Replica) service() *leader.Publisher {
	address, err := netip.ParseAddr(os.Getenv("POD_IP"))
	if err != nil {
		return nil
	}
	k := &leader.Publisher{
		API: o.documents, Namespace: o.config.Lease.Namespace, Name: service, Writer: service, Log: o.log,
		Address: address, Pod: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"),
	}
	for _, p := range []struct {
		name, listen string
		serves       bool
	}{{"scheduler", o.config.Listen, o.extender != nil}, {"watched", o.config.Watched, o.config.Watched != "off"}} {
		_, text, _ := net.SplitHostPort(p.listen)
		if number, err := strconv.Atoi(text); err == nil && p.serves {
			k.Ports = append(k.Ports, leader.Port{Name: p.name, Port: number, Protocol: "TCP"})
		}
	}
	return k
}
