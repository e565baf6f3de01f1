"""What survives this process: who the dispatcher is, what it meant to submit, what it learnt and could not tell yet."""
