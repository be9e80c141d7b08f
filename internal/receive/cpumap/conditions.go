package cpumap

import (
	"fmt"

	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/setting"
)

// Features that must be off while the sorter is in the driver, as
// net/ethtool/common.c names them. A frame that goes to a cpumap from there is
// bytes and nothing else: a VLAN tag that the hardware took off would be lost,
// and a checksum that a veth's sender left to "the hardware" would stay
// unfinished, so that the frame is dropped.
const (
	featureVLANParse  = "rx-vlan-hw-parse"
	featureChecksum   = "tx-checksum-ip-generic"
	featureVLANInsert = "tx-vlan-hw-insert"
	featureSTagInsert = "tx-vlan-stag-hw-insert"
)

// condition is a feature that must be off, on one end of the link.
type condition struct {
	host    *setting.Host
	device  string
	feature string
}

// conditions lists what must be off for this device.
func (a *Adapter) conditions() []condition {
	switch {
	case a.device.Kind == "":
		return []condition{{a.near, a.device.Name, featureVLANParse}}
	case a.device.Kind == "veth" && a.far != nil:
		return []condition{
			{a.far, a.farLink.Name, featureChecksum},
			{a.far, a.farLink.Name, featureVLANInsert},
			{a.far, a.farLink.Name, featureSTagInsert},
		}
	}
	return nil
}

// meetConditions decides whether the sorter can be in the driver, and makes
// it safe there before it is.
func (a *Adapter) meetConditions() error {
	if a.sorter.AttachedTo(linkGeneric, a.device.Index) {
		return nil
	}
	why, err := a.harm()
	if err != nil {
		return err
	}
	if why != "" && !a.sorter.AttachedTo(linkNative, a.device.Index) {
		a.generic = why
		return nil
	}
	a.generic = ""
	for _, c := range a.conditions() {
		if err := c.host.Set(a.spec.Journal, setting.Feature, c.device, c.feature, "off"); err != nil {
			return err
		}
	}
	return nil
}

// harm says why the sorter must stay out of the driver, or "".
func (a *Adapter) harm() (string, error) {
	switch {
	case a.device.Kind == "veth" && a.far == nil:
		return "the far end, whose checksums would have to be finished first, cannot be seen", nil
	case a.device.Kind != "" && a.device.Kind != "veth":
		// A tun hands over frames with unfinished checksums; the others have
		// no XDP of their own, or hand on frames of devices that we do not know.
		return fmt.Sprintf("frames of a %s may have unfinished checksums", a.device.Kind), nil
	}
	for _, c := range a.conditions() {
		features, err := c.host.Ethtool().Features(c.device)
		if err != nil {
			return "", err
		}
		if f := features[c.feature]; f.Active && f.Fixed() {
			return fmt.Sprintf("%s of %s cannot be switched off", c.feature, c.device), nil
		}
	}
	return "", nil
}

// drift lists the conditions that no longer hold.
func (a *Adapter) drift() ([]string, error) {
	if a.generic != "" {
		return nil, nil
	}
	var out []string
	read := map[string]ethtool.Features{}
	for _, c := range a.conditions() {
		if read[c.device] == nil {
			features, err := c.host.Ethtool().Features(c.device)
			if err != nil {
				return nil, err
			}
			read[c.device] = features
		}
		if read[c.device][c.feature].Active {
			out = append(out, fmt.Sprintf("%s of %s is on again", c.feature, c.device))
		}
	}
	return out, nil
}
