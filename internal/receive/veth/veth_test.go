package veth_test

import (
	"testing"

	"xlane/internal/receive"
	"xlane/internal/receive/adaptertest"
	"xlane/internal/receive/veth"
	"xlane/internal/testenv"
)

func TestAdapter(t *testing.T) {
	testenv.Lab(t)
	adaptertest.Run(t, adaptertest.Subject{
		Name: "veth",
		New: func(spec receive.Spec) (receive.Adapter, error) {
			a, err := veth.New(spec)
			if err != nil {
				return nil, err
			}
			return a, nil
		},
		Can: adaptertest.Can{
			Hold: true, Places: 4,
			Minds: []adaptertest.Disturbance{
				adaptertest.GROToggled, adaptertest.ChannelsChanged, adaptertest.FarTSOOn, adaptertest.FarXPSSet,
				adaptertest.ProgramDetached, adaptertest.TimersReset, adaptertest.FarMoved,
			},
		},
	})
}
