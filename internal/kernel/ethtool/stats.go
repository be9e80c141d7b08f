package ethtool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The statistics ioctls: include/uapi/linux/ethtool.h.
const (
	ethSSStats    = 1  // enum ethtool_stringset ETH_SS_STATS
	ethStringSize = 32 // ETH_GSTRING_LEN

	// statsMax bounds the answer. The kernel writes as many values as the
	// driver has at that moment, whatever the buffer holds, so the buffers are
	// made for the maximum; a NIC with 128 queues has about 3,000.
	statsMax = 16384
)

// Statistics reads the driver's own counters by name; on veth these are
// per-queue ones such as "rx_queue_0_drops" and "rx_queue_0_xdp_packets". The
// generic netlink family has only standard MAC and PHY counters, so this is
// the ioctl, on a socket made inside the namespace. The map is empty when the
// driver has none.
func (c *Conn) Statistics(dev string) (map[string]uint64, error) {
	var values map[string]uint64
	err := c.ns.Do(func() error {
		sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(sock)
		values, err = readStatistics(sock, dev)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read statistics of %q: %w", dev, err)
	}
	return values, nil
}

func readStatistics(sock int, dev string) (map[string]uint64, error) {
	// struct ethtool_sset_info: cmd, reserved, u64 mask, u32 count.
	info := make([]byte, 4+4+8+4)
	binary.NativeEndian.PutUint32(info, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(info[8:], 1<<ethSSStats)
	if err := ioctl(sock, dev, info); err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint64(info[8:]) == 0 {
		return map[string]uint64{}, nil
	}
	count := binary.NativeEndian.Uint32(info[16:])
	if count > statsMax {
		return nil, fmt.Errorf("the driver has %d, over the limit of %d", count, statsMax)
	}
	// struct ethtool_gstrings: cmd, string set, count, names.
	names := make([]byte, 12+statsMax*ethStringSize)
	binary.NativeEndian.PutUint32(names, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(names[4:], ethSSStats)
	binary.NativeEndian.PutUint32(names[8:], count)
	if err := ioctl(sock, dev, names); err != nil {
		return nil, err
	}
	// struct ethtool_stats: cmd, count, values.
	values := make([]byte, 8+statsMax*8)
	binary.NativeEndian.PutUint32(values, unix.ETHTOOL_GSTATS)
	binary.NativeEndian.PutUint32(values[4:], count)
	if err := ioctl(sock, dev, values); err != nil {
		return nil, err
	}
	return pairStatistics(names, values)
}

// pairStatistics joins the two answers. Their counts differ when the device's
// channels changed in between, and then no name can be trusted.
func pairStatistics(names, values []byte) (map[string]uint64, error) {
	named, counted := binary.NativeEndian.Uint32(names[8:]), binary.NativeEndian.Uint32(values[4:])
	if named != counted {
		return nil, fmt.Errorf("the driver named %d and counted %d: its channels changed meanwhile", named, counted)
	}
	stats := make(map[string]uint64, named)
	for i := range int(named) {
		name := names[12+i*ethStringSize:][:ethStringSize]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		stats[string(name)] = binary.NativeEndian.Uint64(values[8+i*8:])
	}
	return stats, nil
}

// ifreq is struct ifreq with ifr_data: 16 bytes of name, then a union whose
// largest member (struct ifmap) has 24 bytes.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

func ioctl(sock int, dev string, buffer []byte) error {
	var req ifreq
	if len(dev) >= len(req.name) {
		return fmt.Errorf("device name of %d characters: %w", len(dev), unix.ENODEV)
	}
	copy(req.name[:], dev)
	req.data = unsafe.Pointer(&buffer[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(sock), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return errno
	}
	return nil
}
