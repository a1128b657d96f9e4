package main

// One member of an etcd cluster, in this process: etcd as its `embed` package starts it, with its defaults (synced).

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// member serves until SIGTERM. It prints a line when it is ready.
func member(name, dir, client, peer, cluster string) error {
	config := embed.NewConfig()
	config.Name = name
	config.Dir = dir
	config.InitialCluster = cluster
	config.LogLevel = "error"
	clientURL, err := url.Parse("http://" + client)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse("http://" + peer)
	if err != nil {
		return err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("etcd %s was not ready within a minute", name)
	}
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return err
	}
}
