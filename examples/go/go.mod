module fencepost.example/agent

go 1.19
