package main

// The two clusters: three processes each, on loopback, each member in a directory of its own.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const members = 3

// cluster is one that runs: its processes, and how a turn of load is put on it.
type cluster struct {
	name      string
	processes []*exec.Cmd
	load      func(clients int, duration time.Duration, valueBytes int) (figures, error)
}

// stop ends all members and waits for them.
func (c *cluster) stop() {
	for _, process := range c.processes {
		process.Process.Signal(syscall.SIGTERM)
	}
	for _, process := range c.processes {
		ended := make(chan struct{})
		go func() { process.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			process.Process.Kill()
			<-ended
		}
	}
}

// start begins a member and waits until it prints a line.
func (c *cluster) start(program string, args ...string) error {
	process := exec.Command(program, args...)
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	c.processes = append(c.processes, process)
	line := make(chan error, 1)
	go func() {
		reader := bufio.NewReader(output)
		_, err := reader.ReadString('\n')
		line <- err
		// What it prints later must not fill the pipe.
		for err == nil {
			_, err = reader.ReadString('\n')
		}
	}()
	select {
	case err := <-line:
		if err != nil {
			return fmt.Errorf("%s ended before it was ready: %w", process, err)
		}
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%s was not ready within a minute", process)
	}
}

// addresses are free ones on loopback; another process could take one before the member does, and then the start fails.
func addresses(count int) ([]string, error) {
	var all []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		all = append(all, listener.Addr().String())
	}
	return all, nil
}

func startEtcd(dir string) (*cluster, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	clients, err := addresses(members)
	if err != nil {
		return nil, err
	}
	peers, err := addresses(members)
	if err != nil {
		return nil, err
	}
	var parts []string
	for number, peer := range peers {
		parts = append(parts, fmt.Sprintf("m%d=http://%s", number, peer))
	}
	c := &cluster{name: "etcd"}
	c.load = func(count int, duration time.Duration, valueBytes int) (figures, error) {
		return turn(own, "load", "--servers", strings.Join(clients, ","),
			"--clients", fmt.Sprint(count), "--seconds", fmt.Sprint(duration.Seconds()), "--value-bytes", fmt.Sprint(valueBytes))
	}
	// A member is ready only when a majority is there, so all start before the first is waited for.
	ready := make(chan error, members)
	running := make(chan *exec.Cmd, members)
	for number := range members {
		go func() {
			one := &cluster{}
			err := one.start(own, "member", fmt.Sprintf("m%d", number), filepath.Join(dir, fmt.Sprint(number)), clients[number], peers[number], strings.Join(parts, ","))
			for _, process := range one.processes {
				running <- process
			}
			ready <- err
		}()
	}
	for range members {
		if failed := <-ready; failed != nil && err == nil {
			err = failed
		}
	}
	close(running)
	for process := range running {
		c.processes = append(c.processes, process)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// startOurs starts the example's program; load is the built example of that name, which puts the load on it.
func startOurs(program, load, dir string) (*cluster, error) {
	servers, err := addresses(members)
	if err != nil {
		return nil, err
	}
	var parts []string
	for number, server := range servers {
		parts = append(parts, fmt.Sprintf("%d=%s", number+1, server))
	}
	c := &cluster{name: "replicated-log"}
	c.load = func(count int, duration time.Duration, valueBytes int) (figures, error) {
		return turn(load, strings.Join(servers, ","), fmt.Sprint(count), fmt.Sprint(duration.Seconds()), fmt.Sprint(valueBytes))
	}
	for number, server := range servers {
		args := []string{"serve", "--id", fmt.Sprint(number + 1), "--dir", filepath.Join(dir, fmt.Sprint(number+1)),
			"--listen", server, "--cluster", strings.Join(parts, ",")}
		if number == members-1 {
			args = append(args, "--bootstrap")
		}
		if err := c.start(program, args...); err != nil {
			c.stop()
			return nil, err
		}
	}
	return c, nil
}

// turn runs a program that puts load on a cluster and prints its figures as JSON.
func turn(program string, args ...string) (figures, error) {
	process := exec.Command(program, args...)
	process.Stderr = os.Stderr
	output, err := process.Output()
	if err != nil {
		return figures{}, fmt.Errorf("%s: %w", process, err)
	}
	var result figures
	if err := json.Unmarshal(output, &result); err != nil {
		return figures{}, fmt.Errorf("%s printed %q: %w", process, output, err)
	}
	return result, nil
}
