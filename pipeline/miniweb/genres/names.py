"""Invented user names and places that several kinds of pages share."""

USERS = (
    "quietfox", "maple77", "tuesday_owl", "bluekettle", "northwind", "pinecone", "slowtrain", "greyheron", "redbrick", "lemonade9", "paperboat",
    "oldbicycle", "marblecat", "snowdrift", "copperpot", "rivermouth", "tinroof", "wildgarlic", "nightferry", "softpencil", "stonebridge4",
    "applecore", "windowseat", "latebus", "greenumbrella", "drywell", "sandpiper", "coldtea", "hilltop12", "woolsock",
)  # fmt: skip

TOWNS = (
    "Northfield", "Ashbourne", "Millhaven", "Port Ellery", "Greystone", "Lakemont", "Weston Vale", "Harrow Point", "Eastbrook", "Fernley",
    "Stonebury", "Oakhurst", "Riverton Cross", "Silverdale", "Brackwater", "Coldwell", "Marlow Heath", "Highmoor", "Saltby", "Thornwick",
)  # fmt: skip

USERS_ZH = (
    "山里的风", "一杯清茶", "南方小镇", "快乐的鱼", "雨后阳光", "老城故事", "绿豆汤", "北岸", "晴天小屋", "慢慢走", "蓝色书桌", "海边的猫",
    "夜行列车", "小桥流水", "秋天的树", "白云深处", "胡同口", "半亩花田", "木头人", "早起的鸟",
)  # fmt: skip

TOWNS_ZH = ("青河", "临水", "东林", "云山", "石桥", "白沙", "南浦", "长宁镇", "金湖", "北原", "柳溪", "安平镇")
