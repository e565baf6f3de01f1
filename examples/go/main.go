// An agent's mailbox from the command line:
//
//	agent [--tls HOST:PORT --certificates FOLDER --credential FILE] send TARGET TEXT | request TARGET TEXT | answer TEXT | inbox
//
// Without flags it speaks over the socket as FENCEPOST_HOME and FENCEPOST_SESSION_ID say.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "fencepost.example/agent/gen/fencepost/mailbox/v1"
)

const answerWait = 30 * time.Second

func put(message proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

func putOr[A proto.Message](message A, err error) error {
	if err != nil {
		return err
	}
	return put(message)
}

func open(address, certificates, credential string) (*Mailbox, error) {
	if address == "" {
		return FromEnvironment()
	}
	token, err := os.ReadFile(credential)
	if err != nil {
		return nil, err
	}
	return Open(address, strings.TrimSpace(string(token)), certificates)
}

func run(mailbox *Mailbox, words []string) error {
	switch {
	case len(words) == 3 && words[0] == "send":
		return putOr(mailbox.Send(words[1], words[2]))
	case len(words) == 3 && words[0] == "request":
		return putOr(mailbox.Request(words[1], words[2]))
	case len(words) == 1 && words[0] == "inbox":
		return mailbox.Inbox(0, func(record *pb.Record) error { return put(record) })
	case len(words) == 2 && words[0] == "answer":
		return mailbox.Inbox(answerWait, func(record *pb.Record) error {
			if record.Kind != pb.RecordKind_RECORD_KIND_REQUEST || record.AnswerState != pb.AnswerState_ANSWER_STATE_OPEN {
				return nil
			}
			return putOr(mailbox.Reply(record.RecordId, words[1]))
		})
	}
	return errors.New("say send, request, inbox or answer")
}

func main() {
	address := flag.String("tls", "", "host:port of a mailbox that listens")
	certificates := flag.String("certificates", "", "folder that `fencepost certs issue` made")
	credential := flag.String("credential", "", "the agent's credential file")
	flag.Parse()
	mailbox, err := open(*address, *certificates, *credential)
	if err == nil {
		defer mailbox.Close()
		err = run(mailbox, flag.Args())
	}
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		fmt.Fprintf(os.Stderr, "%s\n%s\n", refused, refused.Hint)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
