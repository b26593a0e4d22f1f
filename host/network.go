package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// NetworkAnswers is what the kernel reports over netlink. What the kernel does not have is absent.
type NetworkAnswers struct {
	// Interfaces by name, without their speed, which netlink does not report.
	Interfaces map[string]accel.NetworkInterface
	// RDMA devices by name.
	RDMA map[string]RDMAAnswer
	// Devlink by PCI address.
	Devlink map[string]DevlinkAnswer
	// Unknown says what the kernel did not answer, and why; nil if it answered everything.
	Unknown error
}

// RDMAAnswer is an RDMA device and its firmware.
type RDMAAnswer struct {
	accel.RDMADevice
	Firmware string
}

// DevlinkAnswer is what devlink reports about a device. Versions are keyed by the driver's names: Running holds the
// fixed and the running ones, Stored those in flash.
type DevlinkAnswer struct {
	Running, Stored map[string]string
	Reporters       []accel.HealthReporter
}

// Network asks the kernel about network interfaces, about devlink devices and, if rdma is true, about RDMA devices,
// all in the network namespace of process 1. A kernel without RDMA or devlink reports none. Firmware may delay the
// answer, even forever. When ctx ends, Network returns and the waiting thread stays behind.
//
// Rdma must be false if /sys/class/infiniband is empty: asking makes the kernel load the module ib_core.
func (k Kernel) Network(ctx context.Context, interfaces []string, rdma bool) NetworkAnswers {
	if !k.h.Live() {
		return NetworkAnswers{Unknown: errors.New("not the running machine, whose kernel alone can be asked")}
	}
	answered := make(chan NetworkAnswers, 1)
	guard.Go(func() {
		var a NetworkAnswers
		err := k.inNetwork(func() error { a = askNetwork(interfaces, rdma); return nil })
		a.Unknown = errors.Join(a.Unknown, err)
		answered <- a
	})
	select {
	case a := <-answered:
		return a
	case <-ctx.Done():
		return NetworkAnswers{Unknown: fmt.Errorf("no answer from the kernel: %w", ctx.Err())}
	}
}

func askNetwork(interfaces []string, rdma bool) (a NetworkAnswers) {
	var links, devices, devlink error
	a.Interfaces, links = askInterfaces(interfaces)
	if rdma {
		a.RDMA, devices = askRDMA()
	}
	a.Devlink, devlink = askDevlink()
	a.Unknown = errors.Join(links, devices, devlink)
	return a
}

// askInterfaces asks for each interface by name, because a node with a thousand containers has a thousand others.
func askInterfaces(names []string) (map[string]accel.NetworkInterface, error) {
	out := map[string]accel.NetworkInterface{}
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("cannot ask for network interface %q: %w", name, err)
		}
		at := link.Attrs()
		i := accel.NetworkInterface{Name: name, MAC: at.HardwareAddr.String(), MTU: at.MTU}
		if at.OperState != netlink.OperUnknown {
			i.State = at.OperState.String()
		}
		out[name] = i
	}
	return out, nil
}

// Addresses returns the IP addresses of a network interface in the network namespace of process 1. A copy of a machine
// has none.
func (k Kernel) Addresses(name string) (out []string, err error) {
	if !k.h.Live() {
		return nil, nil
	}
	err = k.inNetwork(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		all, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for _, a := range all {
			out = append(out, a.IPNet.String())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the addresses of network interface %q: %w", name, err)
	}
	return out, nil
}

// rdmaPortGet is RDMA_NLDEV_CMD_PORT_GET (include/uapi/rdma/rdma_netlink.h), which the netlink library lacks.
const rdmaPortGet = 5

func askRDMA() (map[string]RDMAAnswer, error) {
	links, err := netlink.RdmaLinkList()
	if absent(err) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("cannot ask for RDMA devices: %w", err)
	}
	out := map[string]RDMAAnswer{}
	for _, l := range links {
		d := RDMAAnswer{Firmware: l.Attrs.FirmwareVersion}
		d.Name, d.NodeGUID, d.SystemGUID = l.Attrs.Name, guid(l.Attrs.NodeGuid), guid(l.Attrs.SysImageGuid)
		const command = nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT | rdmaPortGet
		req := nl.NewNetlinkRequest(command, unix.NLM_F_ACK|unix.NLM_F_DUMP)
		req.AddData(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(l.Attrs.Index)))
		ports, err := req.Execute(unix.NETLINK_RDMA, 0)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, fmt.Errorf("cannot ask for the ports of RDMA device %q: %w", d.Name, err)
		}
		for _, m := range ports {
			if p := rdmaPort(m); p.Number > 0 {
				d.Ports = append(d.Ports, p)
			}
		}
		out[d.Name] = d
	}
	return out, nil
}

// guid reverses the library's form of a GUID, which begins with the last byte, and writes it as sysfs does. It is empty
// for anything else, and for a GUID of zeros, which a device has before it is given one.
func guid(reversed string) string {
	octets := strings.Split(reversed, ":")
	if len(octets) != 8 || strings.Trim(reversed, "0:") == "" {
		return ""
	}
	var b strings.Builder
	for i := len(octets) - 1; i >= 0; i-- {
		if n, err := strconv.ParseUint(octets[i], 16, 8); err != nil || fmt.Sprintf("%02x", n) != octets[i] {
			return ""
		}
		b.WriteString(octets[i])
		if i > 0 && i%2 == 0 {
			b.WriteByte(':')
		}
	}
	return b.String()
}

// rdmaPort parses the kernel's report on a port (drivers/infiniband/core/nldev.c, fill_port_info). The states have the
// numbers of PortInfo in the InfiniBand specification.
func rdmaPort(message []byte) accel.RDMAPort {
	states := []string{"", "down", "init", "armed", "active", "active-defer"}
	physical := []string{"", "sleep", "polling", "disabled", "training", "link-up", "error-recovery", "phy-test"}
	var p accel.RDMAPort
	for _, a := range attributes(message) {
		switch a.kind {
		case nl.RDMA_NLDEV_ATTR_PORT_INDEX:
			p.Number = int(a.number())
		case nl.RDMA_NLDEV_ATTR_PORT_STATE:
			p.State = nth(states, a.number())
		case nl.RDMA_NLDEV_ATTR_PORT_PHYS_STATE:
			p.Physical = nth(physical, a.number())
		case nl.RDMA_NLDEV_ATTR_NDEV_NAME:
			p.Interface = a.text()
		}
	}
	return p
}

func nth(names []string, n uint64) string {
	if n < uint64(len(names)) {
		return names[n]
	}
	return ""
}

// Constants of devlink that the library lacks (include/uapi/linux/devlink.h).
const (
	devlinkReporterGet        = 52
	devlinkReporter           = 114
	devlinkReporterName       = 115
	devlinkReporterState      = 116
	devlinkReporterErrors     = 117
	devlinkReporterRecoveries = 118
)

func askDevlink() (map[string]DevlinkAnswer, error) {
	families, err := netlink.GenlFamilyList() // if asked for one family by name, the kernel would try to load a module
	if absent(err) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("cannot ask for devlink: %w", err)
	}
	for _, f := range families {
		if f.Name != nl.GENL_DEVLINK_NAME {
			continue
		}
		out := map[string]DevlinkAnswer{}
		for _, command := range []uint8{nl.DEVLINK_CMD_INFO_GET, devlinkReporterGet} {
			messages, err := dumpDevlink(f.ID, command)
			if err != nil {
				return out, fmt.Errorf("cannot ask devlink: %w", err)
			}
			for _, m := range messages {
				addDevlink(out, m)
			}
		}
		return out, nil
	}
	return nil, nil
}

func dumpDevlink(family uint16, command uint8) ([][]byte, error) {
	req := nl.NewNetlinkRequest(int(family), unix.NLM_F_ACK|unix.NLM_F_DUMP)
	req.AddData(&nl.Genlmsg{Command: command, Version: nl.GENL_DEVLINK_VERSION})
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if absent(err) || errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return messages, err
}

// addDevlink adds what a message says about a PCI function. The library's own parser is not used: it overwrites the
// running version with the version in flash, because both have the same name.
func addDevlink(out map[string]DevlinkAnswer, message []byte) {
	if len(message) < nl.SizeofGenlmsg {
		return
	}
	var bus, device string
	d := DevlinkAnswer{Running: map[string]string{}, Stored: map[string]string{}}
	for _, a := range attributes(message[nl.SizeofGenlmsg:]) {
		switch a.kind {
		case nl.DEVLINK_ATTR_BUS_NAME:
			bus = a.text()
		case nl.DEVLINK_ATTR_DEV_NAME:
			device = a.text()
		case nl.DEVLINK_ATTR_INFO_VERSION_FIXED, nl.DEVLINK_ATTR_INFO_VERSION_RUNNING:
			addVersion(d.Running, a.value)
		case nl.DEVLINK_ATTR_INFO_VERSION_STORED:
			addVersion(d.Stored, a.value)
		case devlinkReporter:
			d.Reporters = append(d.Reporters, reporter(a.value))
		}
	}
	if bus != "pci" {
		return
	}
	if before, known := out[device]; known {
		if len(d.Running)+len(d.Stored) == 0 {
			d.Running, d.Stored = before.Running, before.Stored
		}
		d.Reporters = append(before.Reporters, d.Reporters...)
	}
	out[device] = d
}

func addVersion(versions map[string]string, b []byte) {
	var name, value string
	for _, a := range attributes(b) {
		switch a.kind {
		case nl.DEVLINK_ATTR_INFO_VERSION_NAME:
			name = a.text()
		case nl.DEVLINK_ATTR_INFO_VERSION_VALUE:
			value = a.text()
		}
	}
	versions[name] = value
}

func reporter(b []byte) accel.HealthReporter {
	r := accel.HealthReporter{State: "healthy"}
	for _, a := range attributes(b) {
		switch a.kind {
		case devlinkReporterName:
			r.Name = a.text()
		case devlinkReporterState:
			if a.number() != 0 {
				r.State = "error"
			}
		case devlinkReporterErrors:
			r.Errors = a.number()
		case devlinkReporterRecoveries:
			r.Recoveries = a.number()
		}
	}
	return r
}

// absent reports whether err means that the kernel does not support the request.
func absent(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

// netlinkAttribute is one attribute of a netlink message.
type netlinkAttribute struct {
	kind  uint16
	value []byte
}

// attributes parses a message as far as possible.
func attributes(b []byte) []netlinkAttribute {
	parsed, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil
	}
	var out []netlinkAttribute
	for _, a := range parsed {
		out = append(out, netlinkAttribute{a.Attr.Type & nl.NLA_TYPE_MASK, a.Value})
	}
	return out
}

func (a netlinkAttribute) text() string {
	text, _, _ := strings.Cut(string(a.value), "\x00")
	return text
}

// number returns the value of an attribute of 8, 16, 32 or 64 bits, and 0 for any other.
func (a netlinkAttribute) number() uint64 {
	switch order := binary.NativeEndian; len(a.value) {
	case 1:
		return uint64(a.value[0])
	case 2:
		return uint64(order.Uint16(a.value))
	case 4:
		return uint64(order.Uint32(a.value))
	case 8:
		return order.Uint64(a.value)
	}
	return 0
}
