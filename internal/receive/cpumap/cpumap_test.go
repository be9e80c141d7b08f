package cpumap_test

import (
	"testing"

	"xlane/internal/receive"
	"xlane/internal/receive/adaptertest"
	"xlane/internal/receive/cpumap"
	"xlane/internal/testenv"
)

func TestAdapter(t *testing.T) {
	testenv.Lab(t)
	adaptertest.Run(t, adaptertest.Subject{
		Name: "cpumap",
		New: func(spec receive.Spec) (receive.Adapter, error) {
			a, err := cpumap.New(spec)
			if err != nil {
				return nil, err
			}
			return a, nil
		},
		Can: adaptertest.Can{
			Hold: false, Places: 2,
			Minds: []adaptertest.Disturbance{
				adaptertest.FarChecksumOn, adaptertest.ProgramDetached, adaptertest.FarMoved,
			},
		},
	})
}
