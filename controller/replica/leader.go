package replica

import (
	"net"
	"net/netip"
	"os"
	"strconv"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/acceld/acceld/controller/leader"
)

// service is the name of the controller's Service.
const service = "acceld-controller"

// elected notes by which election it is known who is the leader; nil: the one there is has read the lease.
func (o *Replica) elected(by *leaderelection.LeaderElector) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if by == nil {
		o.seen = true
		return
	}
	o.elector = by
}

// leader is the name of the leader, as far as is known.
func (o *Replica) leader() string {
	o.mu.Lock()
	by := o.elector
	o.mu.Unlock()
	if by == nil {
		return ""
	}
	return by.GetLeader()
}

// wants says what this replica lacks to do its part; nothing when it is ready. The leader knows what it must; another
// replica can be elected at any time, which takes the API server and certificates.
func (o *Replica) wants() string {
	o.mu.Lock()
	seen, p := o.seen, o.policies
	o.mu.Unlock()
	switch {
	case o.keeper != nil && !o.keeper.Has():
		return "there is no certificate yet"
	case !seen:
		return "the lease has not been read yet"
	case o.leader() != o.identity:
		return ""
	case o.extender != nil && !o.extender.Ready():
		return "the books of the cards are not complete yet"
	case !o.config.Policies:
		return ""
	case p == nil:
		return "policies are not carried out"
	}
	select {
	case <-p.Ready():
		return ""
	default:
		if o.extender != nil { // the scheduler waits for nobody's policies
			return ""
		}
		return "the cluster has not been read yet"
	}
}

// service returns what leads the Service to this replica: in a pod, which is told its address. Elsewhere nothing does.
func (o *Replica) service() *leader.Keeper {
	address, err := netip.ParseAddr(os.Getenv("POD_IP"))
	if err != nil {
		return nil
	}
	k := &leader.Keeper{
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
