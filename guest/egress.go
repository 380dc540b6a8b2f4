package guest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// EgressGateway is the address at which the other end of the guest's way out answers questions for names. It is of
// IPv4's own range for links (RFC 3927), so no host of the site has it.
var EgressGateway = netip.MustParseAddr("169.254.83.1")

// EgressLink is the name of the interface that leads out of the job's network.
const EgressLink = "slurmv-out"

// EgressMTU is the size of the largest packet on the guest's way out, in bytes. Large packets
// are few messages.
const EgressMTU = 32 << 10

// minPacket is the length of an IPv4 header without options.
const minPacket = 20

// Egress makes the guest send packets for other networks into the returned stream, whole
// packets of IPv4 one after another. The guest removes the interface when the stream ends.
func (s *Session) Egress(ctx context.Context) (*PacketStream, error) {
	st, err := s.open(ctx, Header{Kind: kindEgress})
	if err == nil {
		_, err = s.answer(ctx, st)
	}
	if err != nil {
		return nil, fmt.Errorf("give the VM a way out of its network: %w", err)
	}
	return &PacketStream{st, packetLength}, nil
}

// egress passes packets between an interface and the stream, until the stream ends.
func (s *Server) egress(ctx context.Context, st *stream) {
	defer st.Finish()
	link, err := s.Machine.Egress(ctx)
	if err != nil {
		_ = writeLine(st, answer{Error: err.Error()})
		return
	}
	stop := context.AfterFunc(ctx, st.Abandon)
	defer stop()
	if err := writeLine(st, answer{}); err != nil {
		_ = link.Close()
		return
	}
	err = passMessages(st, link, packetLength)
	s.log().Info("the way out of the network has ended", "err", err)
}

// packetLength reads the length of a packet from its first bytes (RFC 791, 3.1).
func packetLength(head []byte) (int, error) {
	length := int(binary.BigEndian.Uint16(head[2:]))
	if head[0]>>4 != 4 || length < minPacket || length > EgressMTU {
		return 0, fmt.Errorf("a packet of IPv%d with %d bytes", head[0]>>4, length)
	}
	return length, nil
}
