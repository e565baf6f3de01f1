"""Children with an owner: started behind a launcher that dies with us, drained, stopped as a group, joined."""
