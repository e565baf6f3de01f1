"""Where records lie. `protocol` says what any store does; `sqlite` is the embedded one."""
