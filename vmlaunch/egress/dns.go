package egress

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// mostAddresses fit into an answer of 512 bytes (RFC 1035, 4.2.1).
const mostAddresses = 16

// ttl is how long a guest may keep an answer, in seconds.
const ttl = 10

// reply answers a question for a name: with the addresses that the node finds, or that there
// are none.
func (n *names) reply(ctx context.Context, query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil || header.Response {
		return nil, errors.Join(err, errors.New("no question"))
	}
	answer := dnsmessage.Header{ID: header.ID, Response: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true}
	var body []dnsmessage.AResource
	switch {
	case header.OpCode != 0 || q.Class != dnsmessage.ClassINET:
		answer.RCode = dnsmessage.RCodeNotImplemented
	case q.Type == dnsmessage.TypeA || q.Type == dnsmessage.TypeAAAA:
		addrs := n.addresses(ctx, strings.TrimSuffix(q.Name.String(), "."))
		if len(addrs) == 0 {
			answer.RCode = dnsmessage.RCodeNameError
		}
		for _, addr := range addrs[:min(len(addrs), mostAddresses)] {
			body = append(body, dnsmessage.AResource{A: addr.As4()})
		}
	}
	return pack(answer, q, body)
}

func pack(header dnsmessage.Header, q dnsmessage.Question, addrs []dnsmessage.AResource) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, header)
	b.EnableCompression()
	err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers())
	for _, a := range addrs {
		if q.Type == dnsmessage.TypeA {
			err = errors.Join(err, b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: ttl}, a))
		}
	}
	if err != nil {
		return nil, err
	}
	return b.Finish()
}
