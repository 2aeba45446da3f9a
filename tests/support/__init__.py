"""What the tests share: real servers and processes, and how to wait for them."""
