"""What an application or gateway that is limited by another product becomes with headgate, and what differs."""
