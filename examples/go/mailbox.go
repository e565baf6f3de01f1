package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	common "fencepost.example/agent/gen/fencepost/common/v1"
	pb "fencepost.example/agent/gen/fencepost/mailbox/v1"
)

const (
	callMax     = 10 * time.Second
	settleMax   = 10 * time.Second
	settlePause = 200 * time.Millisecond
)

// Refused: the answer was no, and nothing was written.
type Refused struct {
	Reason, Text, Hint string
	MayResend          bool
}

func (r *Refused) Error() string { return r.Reason + ": " + r.Text }

var (
	// ErrNotWritten: it is proved that nothing was written; the key is spent.
	ErrNotWritten = errors.New("nothing was written; take a new key")
	// ErrUncertain: it is not known what was written. Never sent again by itself.
	ErrUncertain = errors.New("it is not known what was written")
)

// meaning returns Refused only where the detail says so; any other failure proves nothing.
func meaning(err error) error {
	if err == nil {
		return nil
	}
	told := status.Convert(err)
	for _, detail := range told.Proto().GetDetails() {
		refusal := &common.Refusal{}
		if !strings.HasSuffix(detail.TypeUrl, "/fencepost.common.v1.Refusal") ||
			proto.Unmarshal(detail.Value, refusal) != nil {
			continue
		}
		if refusal.Reason != "" && refusal.Effect == common.Effect_EFFECT_NOT_WRITTEN {
			return &Refused{refusal.Reason, told.Message(), refusal.Hint, refusal.MayResend}
		}
	}
	return fmt.Errorf("%w: status %s", ErrUncertain, told.Code())
}

// Mailbox is one agent's mailbox.
type Mailbox struct {
	Stub  pb.MailboxServiceClient
	conn  *grpc.ClientConn
	token string
}

// Open returns the mailbox at an address: unix:/path, or host:port with a folder of `fencepost certs issue`.
func Open(address, token, certificates string) (*Mailbox, error) {
	// Dial and WithInsecure are in every version of gRPC 1; what replaces them is not.
	how := grpc.WithInsecure()
	if certificates != "" {
		pair, err := tls.LoadX509KeyPair(
			filepath.Join(certificates, "client.crt"), filepath.Join(certificates, "client.key"))
		if err != nil {
			return nil, err
		}
		authority, err := os.ReadFile(filepath.Join(certificates, "authority.crt"))
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(authority)
		how = grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool,
		}))
	}
	conn, err := grpc.Dial(address, how, grpc.WithDisableRetry())
	if err != nil {
		return nil, err
	}
	return &Mailbox{pb.NewMailboxServiceClient(conn), conn, token}, nil
}

// FromEnvironment returns the mailbox of the home and the agent that the environment names.
func FromEnvironment() (*Mailbox, error) {
	home := os.Getenv("FENCEPOST_HOME")
	if home == "" {
		home = filepath.Join(os.Getenv("HOME"), ".fencepost")
	}
	file := os.Getenv("FENCEPOST_CREDENTIAL_FILE")
	if file == "" {
		file = filepath.Join(home, "agents", os.Getenv("FENCEPOST_SESSION_ID"), "credential")
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	address, err := os.ReadFile(filepath.Join(home, "run", "mailbox.addr"))
	if err != nil {
		return nil, err
	}
	return Open(strings.TrimSpace(string(address)), strings.TrimSpace(string(token)), "")
}

// Close ends the connection.
func (m *Mailbox) Close() { m.conn.Close() }

// with returns the context of one call: the credential and a deadline.
func (m *Mailbox) with(limit time.Duration) (context.Context, context.CancelFunc) {
	named := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+m.token)
	return context.WithTimeout(named, limit)
}

// call makes one call with a deadline.
func call[Q, A any](m *Mailbox, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), ask Q,
	limit time.Duration) (A, error) {
	ctx, cancel := m.with(limit)
	defer cancel()
	answer, err := rpc(ctx, ask)
	return answer, meaning(err)
}

func newKey() string {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return "go-" + hex.EncodeToString(random)
}

// write makes a mutation; where its answer is lost, it asks what became of the key and never sends again.
func write[Q, A any](m *Mailbox, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), ask Q,
	settle func(epoch string) *pb.SettleKeyRequest, receipt func(*pb.SettleKeyResponse) (A, bool)) (A, error) {
	var none A
	// Read before the call: only the store that it was made to can say what became of it.
	described, err := call(m, m.Stub.Describe, &pb.DescribeRequest{}, callMax)
	if err != nil {
		return none, err
	}
	answer, lost := call(m, rpc, ask, callMax)
	if !errors.Is(lost, ErrUncertain) {
		return answer, lost
	}
	for until := time.Now().Add(settleMax); time.Now().Before(until); time.Sleep(settlePause) {
		found, err := call(m, m.Stub.SettleKey, settle(described.Epoch), time.Until(until))
		var refused *Refused
		if errors.As(err, &refused) && !refused.MayResend {
			if refused.Reason == "idempotency_conflict" {
				return none, err
			}
			return none, lost
		}
		if err != nil {
			continue
		}
		if answer, ok := receipt(found); ok && found.Settlement == pb.Settlement_SETTLEMENT_WRITTEN {
			return answer, nil
		}
		if found.Settlement == pb.Settlement_SETTLEMENT_CANCELLED {
			return none, ErrNotWritten
		}
		return none, lost
	}
	return none, lost
}

// Send stores information.
func (m *Mailbox) Send(target, body string) (*pb.SendResponse, error) {
	ask := &pb.SendRequest{Target: target, Body: body, IdempotencyKey: newKey()}
	return write(m, m.Stub.Send, ask, func(epoch string) *pb.SettleKeyRequest {
		return &pb.SettleKeyRequest{Epoch: epoch, Call: &pb.SettleKeyRequest_Send{Send: ask}}
	}, func(found *pb.SettleKeyResponse) (*pb.SendResponse, bool) {
		return found.GetSend(), found.GetSend() != nil
	})
}

// Request stores a request; its reply comes into the inbox.
func (m *Mailbox) Request(target, body string) (*pb.RequestResponse, error) {
	ask := &pb.RequestRequest{Target: target, Body: body, IdempotencyKey: newKey()}
	return write(m, m.Stub.Request, ask, func(epoch string) *pb.SettleKeyRequest {
		return &pb.SettleKeyRequest{Epoch: epoch, Call: &pb.SettleKeyRequest_Request{Request: ask}}
	}, func(found *pb.SettleKeyResponse) (*pb.RequestResponse, bool) {
		return found.GetRequest(), found.GetRequest() != nil
	})
}

// Reply answers a request.
func (m *Mailbox) Reply(requestID, body string) (*pb.ReplyResponse, error) {
	ask := &pb.ReplyRequest{
		RequestId: requestID, Status: pb.ReplyStatus_REPLY_STATUS_DONE, Body: body, IdempotencyKey: newKey(),
	}
	return write(m, m.Stub.Reply, ask, func(epoch string) *pb.SettleKeyRequest {
		return &pb.SettleKeyRequest{Epoch: epoch, Call: &pb.SettleKeyRequest_Reply{Reply: ask}}
	}, func(found *pb.SettleKeyResponse) (*pb.ReplyResponse, bool) {
		return found.GetReply(), found.GetReply() != nil
	})
}

// Inbox gives everything that is not acknowledged to `each`, page by page, then acknowledges it.
func (m *Mailbox) Inbox(wait time.Duration, each func(*pb.Record) error) error {
	ask := &pb.ReceiveRequest{TimeoutMs: int32(wait.Milliseconds())}
	for {
		page, err := call(m, m.Stub.Receive, ask, wait+callMax)
		if err != nil {
			return err
		}
		for _, record := range page.Records {
			if err := each(record); err != nil {
				return err
			}
		}
		if page.HasMore {
			ask = &pb.ReceiveRequest{Cursor: page.NextCursor}
			continue
		}
		if page.AckCursor != "" {
			_, err = call(m, m.Stub.Receive, &pb.ReceiveRequest{AckCursor: page.AckCursor, Limit: 1}, callMax)
		}
		return err
	}
}
